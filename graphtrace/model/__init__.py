# SPDX-License-Identifier: Apache-2.0
"""The schema, the trace, findings and errors: what every other package speaks in."""
