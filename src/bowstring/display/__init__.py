"""How objects look: safe text for terminals, values, tables in text and HTML, the `repr` of options.

Most packages import this one, so it imports none of their classes: arrays, schemas and containers are `Any`.
"""
