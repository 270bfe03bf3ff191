// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors

// A GDExtension for Godot 4: the class SuperslmCast, a Node with open, say, frame, done, text,
// save_and_restore, transcript and close. Scripts call them; the arguments are Variants, so one call function
// serves all.
#include "../stage.hpp"
#include "godot4.h"

#ifdef _WIN32
#define PLUGIN extern "C" __declspec(dllexport)
#else
#define PLUGIN extern "C" __attribute__((visibility("default")))
#endif

namespace {

const char kClass[] = "SuperslmCast";
const char kParent[] = "Node";

// What the engine lends, looked up once.
struct Engine {
  gd_string_name_new_with_utf8_chars* new_name;
  gd_string_new_with_utf8_chars* new_string;
  gd_string_to_utf8_chars* to_utf8;
  gd_classdb_construct_object* construct;
  gd_object_set_instance* set_instance;
  gd_classdb_register_extension_class2* register_class;
  gd_classdb_register_extension_class_method* register_method;
  gd_classdb_unregister_extension_class* unregister_class;
  gd_from_type *from_int, *from_string, *from_bool;
  gd_to_type *to_int, *to_string;
  gd_destructor *free_string, *free_name;
  void* library;
};
Engine engine;

template <typename Function>
bool find(gd_get_proc_address get, const char* name, Function** out) {
  *out = reinterpret_cast<Function*>(get(name));
  return *out != nullptr;
}

bool find_all(gd_get_proc_address get) {
  gd_get_variant_from_type_constructor* from;
  gd_get_variant_to_type_constructor* to;
  gd_variant_get_ptr_destructor* destructor;
  if (!find(get, "string_name_new_with_utf8_chars", &engine.new_name) ||
      !find(get, "string_new_with_utf8_chars", &engine.new_string) ||
      !find(get, "string_to_utf8_chars", &engine.to_utf8) ||
      !find(get, "classdb_construct_object", &engine.construct) ||
      !find(get, "object_set_instance", &engine.set_instance) ||
      !find(get, "classdb_register_extension_class2", &engine.register_class) ||
      !find(get, "classdb_register_extension_class_method", &engine.register_method) ||
      !find(get, "classdb_unregister_extension_class", &engine.unregister_class) ||
      !find(get, "get_variant_from_type_constructor", &from) ||
      !find(get, "get_variant_to_type_constructor", &to) ||
      !find(get, "variant_get_ptr_destructor", &destructor)) {
    return false;
  }
  engine.from_int = from(GD_INT);
  engine.from_bool = from(GD_BOOL);
  engine.from_string = from(GD_STRING);
  engine.to_int = to(GD_INT);
  engine.to_string = to(GD_STRING);
  engine.free_string = destructor(GD_STRING);
  engine.free_name = destructor(GD_STRING_NAME);
  return true;
}

class Name {
 public:
  explicit Name(const char* text) { engine.new_name(&value_, text); }
  ~Name() { engine.free_name(&value_); }
  Name(const Name&) = delete;
  Name& operator=(const Name&) = delete;
  gd_string_name* get() { return &value_; }

 private:
  gd_string_name value_{};
};

// ---- Arguments in, results out ----

class Arguments {
 public:
  explicit Arguments(const gd_variant* const* values) : values_(values) {}
  int64_t integer(int i) const {
    int64_t out = 0;
    engine.to_int(&out, values_[i]);
    return out;
  }
  std::string text(int i) const {
    gd_string string{};
    engine.to_string(&string, values_[i]);
    std::string out(static_cast<size_t>(engine.to_utf8(&string, nullptr, 0)), ' ');
    engine.to_utf8(&string, out.data(), static_cast<int64_t>(out.size()));
    engine.free_string(&string);
    return out;
  }

 private:
  const gd_variant* const* values_;
};

void give(gd_variant* out, int64_t value) { engine.from_int(out, &value); }

void give(gd_variant* out, const std::string& value) {
  gd_string string{};
  engine.new_string(&string, value.c_str());
  engine.from_string(out, &string);
  engine.free_string(&string);
}

void give_bool(gd_variant* out, bool value) {
  const gd_bool byte = value ? 1 : 0;
  engine.from_bool(out, &byte);
}

struct Method {
  const char* name;
  int64_t arguments;
  void (*run)(game::Stage&, const Arguments&, gd_variant*);
};

const Method kMethods[] = {
    {"open", 4,  // path, world, characters, budget in microseconds
     [](game::Stage& stage, const Arguments& in, gd_variant* out) {
       give(out, stage.open(in.text(0), in.text(1), static_cast<int>(in.integer(2)),
                            static_cast<double>(in.integer(3)) / 1000));
     }},
    {"say", 3,  // who, persona, line
     [](game::Stage& stage, const Arguments& in, gd_variant* out) {
       give(out, stage.say(static_cast<int>(in.integer(0)), in.text(1), in.text(2)));
     }},
    {"frame", 0, [](game::Stage& stage, const Arguments&, gd_variant* out) { give(out, stage.frame()); }},
    {"done", 0, [](game::Stage& stage, const Arguments&, gd_variant* out) { give_bool(out, stage.done()); }},
    {"text", 1,  // who
     [](game::Stage& stage, const Arguments& in, gd_variant* out) {
       give(out, stage.text(static_cast<int>(in.integer(0))));
     }},
    {"save_and_restore", 0,
     [](game::Stage& stage, const Arguments&, gd_variant* out) { give(out, stage.save_and_restore()); }},
    {"transcript", 0,
     [](game::Stage& stage, const Arguments&, gd_variant* out) { give(out, stage.transcript()); }},
    {"close", 0, [](game::Stage& stage, const Arguments&, gd_variant* out) { give(out, stage.close()); }},
};

void call(void* userdata, void* instance, const gd_variant* const* arguments, int64_t count,
          gd_variant* result, gd_call_error* error) {
  const auto& method = *static_cast<const Method*>(userdata);
  *error = gd_call_error{GD_CALL_OK, 0, 0};
  if (count != method.arguments) {
    error->error = count < method.arguments ? GD_CALL_TOO_FEW_ARGUMENTS : GD_CALL_TOO_MANY_ARGUMENTS;
    error->expected = static_cast<int32_t>(method.arguments);
    return;
  }
  method.run(*static_cast<game::Stage*>(instance), Arguments(arguments), result);
}

// ---- The class ----

void* create_instance(void*) {
  Name name(kClass), parent(kParent);
  void* object = engine.construct(parent.get());
  engine.set_instance(object, name.get(), new game::Stage);
  return object;
}

void free_instance(void*, void* instance) { delete static_cast<game::Stage*>(instance); }

void register_methods(Name& class_name) {
  for (const Method& method : kMethods) {
    Name name(method.name);
    gd_class_method_info info{};
    info.name = name.get();
    info.method_userdata = const_cast<Method*>(&method);
    info.call = call;
    info.flags = GD_METHOD_NORMAL | GD_METHOD_VARARG;
    engine.register_method(engine.library, class_name.get(), &info);
  }
}

void initialize(void*, int level) {
  if (level != GD_LEVEL_SCENE) return;
  Name name(kClass), parent(kParent);
  gd_class_creation_info2 info{};
  info.is_exposed = 1;
  info.create_instance = create_instance;
  info.free_instance = free_instance;
  engine.register_class(engine.library, name.get(), parent.get(), &info);
  register_methods(name);
}

void deinitialize(void*, int level) {
  if (level != GD_LEVEL_SCENE) return;
  Name name(kClass);
  engine.unregister_class(engine.library, name.get());
}

}  // namespace

PLUGIN gd_bool superslm_library_init(gd_get_proc_address get, void* library, gd_initialization* out) {
  engine.library = library;
  if (!find_all(get)) return 0;
  *out = gd_initialization{GD_LEVEL_SCENE, nullptr, initialize, deinitialize};
  return 1;
}
