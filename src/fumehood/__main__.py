"""`python -m fumehood` is `hood`, for where the script is not on the path."""

import os
import sys

if __name__ == "__main__":
    # Python looks in the current folder first, and strangers may have written what is there. Nothing of ours is, unless
    # it is the folder of the package itself.
    if not sys.flags.safe_path and sys.path[0] != os.path.dirname(os.path.dirname(__file__)):
        del sys.path[0]
    from fumehood_client import main

    main()
