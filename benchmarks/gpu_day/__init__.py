"""A day on a lent GPU: everything worth measuring on one, in the order of worth, within a budget of minutes.

`measurements` is the list, `measure` the process that takes one, `runner` the budget and the state, `page` the results
page with its pictures, `__main__` the command.
"""
