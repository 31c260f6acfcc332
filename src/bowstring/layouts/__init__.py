"""How data lies («Physical Memory Layout»): one module a heading of the columnar format, and the arrays that they
describe.
"""
