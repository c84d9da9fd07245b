"""`python -m drillcore_server.cli` is `drillcore`."""

import sys

from drillcore_server.cli.main import main

sys.exit(main())
