# SPDX-License-Identifier: Apache-2.0
"""Which stage owns an activity, how sure that is, and a time budget that adds up."""
