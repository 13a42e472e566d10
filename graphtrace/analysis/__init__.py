# SPDX-License-Identifier: Apache-2.0
"""The engine: gives analyzers what they need, abstains for them, ranks and clips their claims."""
