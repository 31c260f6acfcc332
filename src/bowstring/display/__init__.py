"""How objects look: safe text for terminals, values, tables in text and HTML, the `repr` of options."""
