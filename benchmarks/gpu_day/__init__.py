"""All measurements on one GPU, the most important first, within a budget of minutes.

`measurements` is the list, `measure` the process of one measurement, `runner` the budget and the state, `page` the
results page with its charts, `__main__` the command.
"""
