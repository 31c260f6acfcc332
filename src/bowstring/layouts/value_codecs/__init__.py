"""Conversion between the fixed-width slots of primitive arrays and Python or NumPy values: numbers, decimals, times,
byte strings.
"""
