# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""The kernel tiers of x86-64, the least first, as SSLM_FORCE_TIER and the library name them."""

TIERS = ("scalar", "sse2", "sse41", "avx2", "avxvnni", "avx512", "avx512vnni")
