"""A generated corpus in the formats of the real ones, for the demo and the tests."""
