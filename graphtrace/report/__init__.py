# SPDX-License-Identifier: Apache-2.0
"""Terminal, JSON and HTML: they render, they never compute."""
