# SPDX-License-Identifier: Apache-2.0
"""`python -m graphtrace`."""

from graphtrace.cli.main import main

main()
