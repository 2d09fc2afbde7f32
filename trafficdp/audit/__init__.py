"""Evidence: neighbouring data, empirical lower bounds of epsilon, mechanisms wrong on purpose."""
