"""`python -m drillcore_server.shard`: main of the server container."""

import sys

from drillcore_server.shard.main import main

if __name__ == "__main__":
    sys.exit(main())
