"""A service: trained models that are asked over HTTP, and a web page for people."""

import bert  # noqa: F401  # its guard, before TensorFlow is imported
