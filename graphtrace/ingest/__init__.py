# SPDX-License-Identifier: Apache-2.0
"""One reader a format, each from a file to model tables."""
