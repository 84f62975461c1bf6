"""Fine-tuning of classification, multiple choice and tagging, and their scores."""

import bert  # noqa: F401  # its guard, before TensorFlow is imported
