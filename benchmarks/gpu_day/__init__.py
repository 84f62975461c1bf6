"""A list of commands that measure on one GPU, the most important first, within a budget of minutes.

`items` is the list, `runner` runs it, `child` is the process of one command, `page` the results page, `__main__` the
command.
"""
