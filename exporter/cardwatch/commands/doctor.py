"""tmp."""


def add_arguments(p):
    pass


def run(p):
    return 0
