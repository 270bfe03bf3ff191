/* SPDX-License-Identifier: Apache-2.0
 * SPDX-FileCopyrightText: SuperSLM contributors */

/* The part of Godot 4's extension interface (4.2 and later, 64-bit, single precision) that the plugin uses.
 * Functions come by name from the address that the entry point is given; types are sizes and pointers. */
#ifndef SUPERSLM_GODOT4_H
#define SUPERSLM_GODOT4_H

#include <stdint.h>

typedef uint8_t gd_bool;
typedef void (*gd_function)(void);
typedef gd_function (*gd_get_proc_address)(const char* name);

/* Values as Godot stores them. */
typedef struct {
  void* data;
} gd_string;
typedef struct {
  void* data;
} gd_string_name;
typedef struct {
  uint64_t data[3];
} gd_variant;

enum gd_variant_type {
  GD_NIL = 0,
  GD_BOOL = 1,
  GD_INT = 2,
  GD_FLOAT = 3,
  GD_STRING = 4,
  GD_STRING_NAME = 21
};
enum gd_level { GD_LEVEL_CORE = 0, GD_LEVEL_SERVERS = 1, GD_LEVEL_SCENE = 2, GD_LEVEL_EDITOR = 3 };
enum gd_method_flags { GD_METHOD_NORMAL = 1, GD_METHOD_VARARG = 16 };
enum gd_call_error_type { GD_CALL_OK = 0, GD_CALL_TOO_MANY_ARGUMENTS = 3, GD_CALL_TOO_FEW_ARGUMENTS = 4 };

typedef struct {
  int minimum_level;
  void* userdata;
  void (*initialize)(void* userdata, int level);
  void (*deinitialize)(void* userdata, int level);
} gd_initialization;

typedef struct {
  int error;
  int32_t argument, expected;
} gd_call_error;

/* Functions that the plugin leaves null are of no interest here. */
typedef struct {
  gd_bool is_virtual, is_abstract, is_exposed;
  gd_function set, get, get_property_list, free_property_list, property_can_revert, property_get_revert,
      validate_property, notification, to_string, reference, unreference;
  void* (*create_instance)(void* class_userdata);
  void (*free_instance)(void* class_userdata, void* instance);
  gd_function recreate_instance, get_virtual, get_virtual_call_data, call_virtual_with_data, get_rid;
  void* class_userdata;
} gd_class_creation_info2;

typedef struct {
  int type;
  gd_string_name* name;
  gd_string_name* class_name;
  uint32_t hint;
  gd_string* hint_string;
  uint32_t usage;
} gd_property_info;

typedef void (*gd_method_call)(void* method_userdata, void* instance, const gd_variant* const* arguments,
                               int64_t count, gd_variant* result, gd_call_error* error);

typedef struct {
  gd_string_name* name;
  void* method_userdata;
  gd_method_call call;
  gd_function ptrcall;
  uint32_t flags;
  gd_bool has_return_value;
  gd_property_info* return_value_info;
  int return_value_metadata;
  uint32_t argument_count;
  gd_property_info* arguments_info;
  int* arguments_metadata;
  uint32_t default_argument_count;
  gd_variant** default_arguments;
} gd_class_method_info;

/* By name: "string_name_new_with_utf8_chars" and so on. */
typedef void gd_string_name_new_with_utf8_chars(gd_string_name* out, const char* text);
typedef void gd_string_new_with_utf8_chars(gd_string* out, const char* text);
typedef int64_t gd_string_to_utf8_chars(const gd_string* string, char* text, int64_t capacity);
typedef void gd_from_type(gd_variant* out, const void* value);
typedef void gd_to_type(void* out, const gd_variant* variant);
typedef gd_from_type* gd_get_variant_from_type_constructor(int type);
typedef gd_to_type* gd_get_variant_to_type_constructor(int type);
typedef void gd_destructor(void* value);
typedef gd_destructor* gd_variant_get_ptr_destructor(int type);
typedef void* gd_classdb_construct_object(const gd_string_name* class_name);
typedef void gd_object_set_instance(void* object, const gd_string_name* class_name, void* instance);
typedef void gd_classdb_register_extension_class2(void* library, const gd_string_name* class_name,
                                                  const gd_string_name* parent_name,
                                                  const gd_class_creation_info2* info);
typedef void gd_classdb_register_extension_class_method(void* library, const gd_string_name* class_name,
                                                        const gd_class_method_info* info);
typedef void gd_classdb_unregister_extension_class(void* library, const gd_string_name* class_name);

#endif
