"""`python -m bowstring` is the command `bowstring`."""

import sys

from bowstring.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
