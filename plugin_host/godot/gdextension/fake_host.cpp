// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors

// Stands in for Godot 4 where there is no Godot 4: lends the plugin the functions it asks for, registers its
// class, makes an instance and calls its methods once per frame. It proves the plugin's side of the interface
// as godot4.h declares it; only Godot itself can prove the other side.
//
//   fake_host PLUGIN MODEL.sslm
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "godot4.h"

namespace {

using Value = std::variant<std::monostate, bool, int64_t, std::string>;

int live = 0;  // strings, names and variants that have not been freed

struct Class {
  gd_class_creation_info2 info;
  std::map<std::string, gd_class_method_info> methods;
};
std::map<std::string, Class> classes;
std::map<void*, void*> instances;  // object: instance

void fail(const char* what) {
  std::fprintf(stderr, "fake_host: %s\n", what);
  std::exit(1);
}

std::string& text_of(const void* string) { return **static_cast<std::string* const*>(string); }
Value& value_of(const gd_variant* variant) { return *reinterpret_cast<Value*>(variant->data[0]); }

void make_text(void* out, const std::string& text) {
  *static_cast<std::string**>(out) = new std::string(text);
  ++live;
}
void free_text(void* string) {
  delete *static_cast<std::string**>(string);
  --live;
}
void make_variant(gd_variant* out, Value value) {
  out->data[0] = reinterpret_cast<uint64_t>(new Value(std::move(value)));
  ++live;
}
void free_variant(gd_variant* variant) {
  delete &value_of(variant);
  --live;
}

// ---- What the plugin looks up ----

void new_name(gd_string_name* out, const char* text) { make_text(out, text); }
void new_string(gd_string* out, const char* text) { make_text(out, text); }
int64_t to_utf8(const gd_string* string, char* out, int64_t capacity) {
  const std::string& text = text_of(string);
  if (out != nullptr) std::memcpy(out, text.data(), std::min(text.size(), static_cast<size_t>(capacity)));
  return static_cast<int64_t>(text.size());
}
gd_from_type* from_type(int type) {
  if (type == GD_INT)
    return [](gd_variant* out, const void* value) { make_variant(out, *static_cast<const int64_t*>(value)); };
  if (type == GD_BOOL)
    return [](gd_variant* out, const void* value) {
      make_variant(out, *static_cast<const gd_bool*>(value) != 0);
    };
  if (type != GD_STRING) fail("a type that the plugin does not need");
  return [](gd_variant* out, const void* value) { make_variant(out, text_of(value)); };
}
gd_to_type* to_type(int type) {
  if (type == GD_INT)
    return [](void* out, const gd_variant* in) {
      *static_cast<int64_t*>(out) = std::get<int64_t>(value_of(in));
    };
  if (type != GD_STRING) fail("a type that the plugin does not need");
  return [](void* out, const gd_variant* in) { make_text(out, std::get<std::string>(value_of(in))); };
}
gd_destructor* destructor(int) { return free_text; }
void* construct(const gd_string_name* name) {
  if (text_of(name) != "Node") fail("the parent is not Node");
  return std::malloc(1);
}
void set_instance(void* object, const gd_string_name*, void* instance) { instances[object] = instance; }
void register_class(void*, const gd_string_name* name, const gd_string_name*,
                    const gd_class_creation_info2* info) {
  classes[text_of(name)].info = *info;
}
void register_method(void*, const gd_string_name* name, const gd_class_method_info* info) {
  classes.at(text_of(name)).methods[text_of(info->name)] = *info;
}
void unregister_class(void*, const gd_string_name* name) { classes.erase(text_of(name)); }

gd_function get_proc_address(const char* name) {
#define ENTRY(key, function) {key, reinterpret_cast<gd_function>(function)}
  static const std::map<std::string, gd_function> kFunctions = {
      ENTRY("string_name_new_with_utf8_chars", new_name),
      ENTRY("string_new_with_utf8_chars", new_string),
      ENTRY("string_to_utf8_chars", to_utf8),
      ENTRY("get_variant_from_type_constructor", from_type),
      ENTRY("get_variant_to_type_constructor", to_type),
      ENTRY("variant_get_ptr_destructor", destructor),
      ENTRY("classdb_construct_object", construct),
      ENTRY("object_set_instance", set_instance),
      ENTRY("classdb_register_extension_class2", register_class),
      ENTRY("classdb_register_extension_class_method", register_method),
      ENTRY("classdb_unregister_extension_class", unregister_class),
  };
#undef ENTRY
  const auto found = kFunctions.find(name);
  return found == kFunctions.end() ? nullptr : found->second;
}

// ---- A script that plays ----

class Node {
 public:
  explicit Node(Class& type) : type_(type), object_(type.info.create_instance(type.info.class_userdata)) {}
  ~Node() {
    type_.info.free_instance(type_.info.class_userdata, instances.at(object_));
    std::free(object_);
  }
  Value call(const char* name, const std::vector<Value>& arguments, int expected_error = GD_CALL_OK) {
    const gd_class_method_info& method = type_.methods.at(name);
    std::vector<gd_variant> values(arguments.size());
    std::vector<const gd_variant*> pointers;
    for (size_t i = 0; i < arguments.size(); ++i) {
      make_variant(&values[i], arguments[i]);
      pointers.push_back(&values[i]);
    }
    gd_variant result{};
    gd_call_error error{};
    method.call(method.method_userdata, instances.at(object_), pointers.data(),
                static_cast<int64_t>(pointers.size()), &result, &error);
    for (gd_variant& value : values) free_variant(&value);
    if (error.error != expected_error) fail(name);
    if (error.error != GD_CALL_OK) return {};
    Value value = value_of(&result);
    free_variant(&result);
    return value;
  }
  std::string text(const char* name, const std::vector<Value>& arguments) {
    return std::get<std::string>(call(name, arguments));
  }

 private:
  Class& type_;
  void* object_;
};

void play(Node& node, const std::string& model) {
  const std::string world =
      "You are in the Drowned Lantern, a tavern on the quay of Saltreach. Stay in your part and answer in "
      "one or two "
      "short sentences.";
  std::printf("refused: %s\n",
              node.text("open", {"/nowhere.sslm", world, int64_t{2}, int64_t{2000}}).c_str());
  node.call("say", {int64_t{0}}, GD_CALL_TOO_FEW_ARGUMENTS);
  std::string why = node.text("open", {model, world, int64_t{2}, int64_t{4000}});
  if (why.empty())
    why = node.text("say", {int64_t{0}, " You are Marta, who keeps the tavern.", "What is there to eat?"});
  if (why.empty())
    why = node.text("say", {int64_t{1}, " You are Oren, an old sailor.", "Where is your ship?"});
  int64_t saved = 0;
  int frames = 0;
  for (; why.empty() && !std::get<bool>(node.call("done", {})); ++frames) {
    why = node.text("frame", {});
    if (saved <= 0 && node.text("text", {int64_t{0}}).size() > 20) {
      saved = std::get<int64_t>(node.call("save_and_restore", {}));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  if (!why.empty()) fail(why.c_str());
  std::printf("%s", node.text("transcript", {}).c_str());
  std::printf("frames %d, saved and restored in mid-sentence: %lld bytes\n", frames,
              static_cast<long long>(saved));
  node.call("close", {});
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) fail("usage: fake_host PLUGIN MODEL.sslm");
  void* plugin = dlopen(argv[1], RTLD_NOW);
  if (plugin == nullptr) fail(dlerror());
  using Entry = gd_bool(gd_get_proc_address, void*, gd_initialization*);
  auto* entry = reinterpret_cast<Entry*>(dlsym(plugin, "superslm_library_init"));
  gd_initialization initialization{};
  if (entry == nullptr || entry(get_proc_address, nullptr, &initialization) == 0)
    fail("the plugin does not start");
  for (int level = GD_LEVEL_CORE; level <= GD_LEVEL_SCENE; ++level) initialization.initialize(nullptr, level);
  {
    Node node(classes.at("SuperslmCast"));
    play(node, argv[2]);
  }
  for (int level = GD_LEVEL_SCENE; level >= GD_LEVEL_CORE; --level)
    initialization.deinitialize(nullptr, level);
  if (!classes.empty() || live != 0) fail("the plugin left something behind");
  std::printf("nothing left behind\n");
  return 0;
}
