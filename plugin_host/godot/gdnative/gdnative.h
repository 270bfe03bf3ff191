/* SPDX-License-Identifier: Apache-2.0
 * SPDX-FileCopyrightText: SuperSLM contributors */

/* The few functions of Godot 3's GDNative core API 1.0 that the plugin uses, by their slot in its table. The
 * table is frozen: every Godot 3 release has it, and newer entries are chained behind it. */
#ifndef SUPERSLM_GDNATIVE_H
#define SUPERSLM_GDNATIVE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
  uint8_t bytes[24];
} godot_variant;
typedef struct {
  void* data;
} godot_string;
typedef struct {
  void* data;
} godot_char_string;
typedef struct godot_array godot_array; /* the arguments of a call; only pointers to it occur */

typedef struct {
  unsigned int type, major, minor;
  const void* next;
  unsigned int extension_count;
  const void* extensions;
  void (*functions[744])(void);
} gdnative_core_api;

typedef struct {
  bool in_editor;
  uint64_t core_api_hash, editor_api_hash, no_api_hash;
  void (*report_version_mismatch)(void);
  void (*report_loading_error)(void);
  void* library;
  const gdnative_core_api* api;
  const godot_string* active_library_path;
} gdnative_init_options;

enum gdnative_slot {
  GDNATIVE_ARRAY_GET = 333,            /* godot_variant (const godot_array*, int) */
  GDNATIVE_VARIANT_NEW_INT = 512,      /* void (godot_variant*, int64_t) */
  GDNATIVE_VARIANT_NEW_STRING = 514,   /* void (godot_variant*, const godot_string*) */
  GDNATIVE_VARIANT_AS_INT = 539,       /* int64_t (const godot_variant*) */
  GDNATIVE_VARIANT_AS_STRING = 541,    /* godot_string (const godot_variant*) */
  GDNATIVE_VARIANT_DESTROY = 570,      /* void (godot_variant*) */
  GDNATIVE_CHAR_STRING_LENGTH = 571,   /* int (const godot_char_string*) */
  GDNATIVE_CHAR_STRING_GET_DATA = 572, /* const char* (const godot_char_string*) */
  GDNATIVE_CHAR_STRING_DESTROY = 573,  /* void (godot_char_string*) */
  GDNATIVE_STRING_UTF8 = 678,          /* godot_char_string (const godot_string*) */
  GDNATIVE_STRING_FROM_UTF8 = 681,     /* godot_string (const char*) */
  GDNATIVE_STRING_DESTROY = 721        /* void (godot_string*) */
};

#endif
