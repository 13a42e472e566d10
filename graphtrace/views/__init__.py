# SPDX-License-Identifier: Apache-2.0
"""Pure functions that bin and shape what a report draws."""
