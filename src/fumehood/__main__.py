"""`python -m fumehood` is `hood`, for where the script is not on the path."""

from fumehood_client import main

if __name__ == "__main__":
    main()
