# SPDX-License-Identifier: Apache-2.0
"""The analyzers that ship with graphtrace, one a module, found by entry point."""
