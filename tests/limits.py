# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""How long tests wait for what must end."""

HANG = 1800  # seconds: a busy machine is slow, and slow is no failure
