# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: SuperSLM contributors
"""The converter: float checkpoint -> calibration -> integers -> model file."""
