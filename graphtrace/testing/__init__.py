# SPDX-License-Identifier: Apache-2.0
"""Public builder of synthetic profiler files with planted stalls."""
