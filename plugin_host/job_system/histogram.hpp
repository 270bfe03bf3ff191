// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors

// Times in milliseconds as a histogram, in text and as a PNG.
#pragma once

#include <string>
#include <vector>

namespace game {

// The time that `part` (0..1) of the samples do not exceed; 0 without samples.
double quantile(std::vector<double> samples, double part);

// Lines such as "  1.5 ms |########   132". Bins are `bin` milliseconds wide; the last one holds the rest.
std::string histogram_text(const std::vector<double>& samples, double bin, int bins);

// Writes the same as a picture, with a mark at `budget` milliseconds. False when the file cannot be written.
bool histogram_png(const char* path, const std::vector<double>& samples, double bin, int bins, double budget);

}  // namespace game
