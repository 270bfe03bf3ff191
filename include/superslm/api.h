/* SPDX-License-Identifier: Apache-2.0
 * SPDX-FileCopyrightText: SuperSLM contributors */
#ifndef SUPERSLM_API_H
#define SUPERSLM_API_H

/* The export slot in front of every public function. It is empty for users of the library; a build of the
 * shared library defines it as its compiler's export attribute. */
#ifndef SUPERSLM_API
#define SUPERSLM_API
#endif

#endif /* SUPERSLM_API_H */
