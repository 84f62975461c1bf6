"""Names of the search that are for users, in a checkout as in an installation."""
