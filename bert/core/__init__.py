"""What everything stands on, without TensorFlow: errors, the command line, configuration, files and outputs."""
