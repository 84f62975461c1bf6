"""How processor time, memory and calls to the system grow with the input, for each curve that once bent."""
