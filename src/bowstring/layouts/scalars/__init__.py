"""What the fixed-width slots of primitive arrays mean: numbers, decimals, times and byte strings, as Python and NumPy
see them.
"""
