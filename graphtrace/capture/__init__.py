# SPDX-License-Identifier: Apache-2.0
"""Runs inside the user's process (standard library only at import), and the launcher around it."""
