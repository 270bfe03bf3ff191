// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors

// A GDNative library for Godot 3: GDNative.call_native("standard_varcall", "superslm_say", [0, persona,
// line]).
#include "../stage.hpp"
#include "gdnative.h"

#ifdef _WIN32
#define PLUGIN extern "C" __declspec(dllexport)
#else
#define PLUGIN extern "C" __attribute__((visibility("default")))
#endif

namespace {

const gdnative_core_api* api = nullptr;
std::unique_ptr<game::Stage> stage;

template <typename Function>
Function* slot(gdnative_slot index) {
  return reinterpret_cast<Function*>(api->functions[index]);
}

// ---- Arguments in, results out ----

class Arguments {
 public:
  explicit Arguments(const godot_array* array) : array_(array) {}
  int64_t integer(int i) const {
    godot_variant value = get(i);
    const int64_t result = slot<int64_t(const godot_variant*)>(GDNATIVE_VARIANT_AS_INT)(&value);
    slot<void(godot_variant*)>(GDNATIVE_VARIANT_DESTROY)(&value);
    return result;
  }
  std::string text(int i) const {
    godot_variant value = get(i);
    godot_string string = slot<godot_string(const godot_variant*)>(GDNATIVE_VARIANT_AS_STRING)(&value);
    godot_char_string utf8 = slot<godot_char_string(const godot_string*)>(GDNATIVE_STRING_UTF8)(&string);
    const int length = slot<int(const godot_char_string*)>(GDNATIVE_CHAR_STRING_LENGTH)(&utf8);
    const char* data = slot<const char*(const godot_char_string*)>(GDNATIVE_CHAR_STRING_GET_DATA)(&utf8);
    const std::string result(data, static_cast<size_t>(length));
    slot<void(godot_char_string*)>(GDNATIVE_CHAR_STRING_DESTROY)(&utf8);
    slot<void(godot_string*)>(GDNATIVE_STRING_DESTROY)(&string);
    slot<void(godot_variant*)>(GDNATIVE_VARIANT_DESTROY)(&value);
    return result;
  }

 private:
  godot_variant get(int i) const {
    return slot<godot_variant(const godot_array*, int)>(GDNATIVE_ARRAY_GET)(array_, i);
  }
  const godot_array* array_;
};

godot_variant of(int64_t value) {
  godot_variant out;
  slot<void(godot_variant*, int64_t)>(GDNATIVE_VARIANT_NEW_INT)(&out, value);
  return out;
}

godot_variant of(const std::string& value) {
  godot_string string = slot<godot_string(const char*)>(GDNATIVE_STRING_FROM_UTF8)(value.c_str());
  godot_variant out;
  slot<void(godot_variant*, const godot_string*)>(GDNATIVE_VARIANT_NEW_STRING)(&out, &string);
  slot<void(godot_string*)>(GDNATIVE_STRING_DESTROY)(&string);
  return out;
}

}  // namespace

PLUGIN void superslm_gdnative_init(const gdnative_init_options* options) {
  api = options->api;
  stage = std::make_unique<game::Stage>();
}
PLUGIN void superslm_gdnative_terminate(void*) { stage.reset(); }

// open(path, world, characters, budget in microseconds), say(who, persona, line), frame(): an empty string,
// or what went wrong.
PLUGIN godot_variant superslm_open(const godot_array* array) {
  const Arguments in(array);
  return of(stage->open(in.text(0), in.text(1), static_cast<int>(in.integer(2)),
                        static_cast<double>(in.integer(3)) / 1000));
}
PLUGIN godot_variant superslm_say(const godot_array* array) {
  const Arguments in(array);
  return of(stage->say(static_cast<int>(in.integer(0)), in.text(1), in.text(2)));
}
PLUGIN godot_variant superslm_frame(const godot_array*) { return of(stage->frame()); }
PLUGIN godot_variant superslm_done(const godot_array*) { return of(int64_t{stage->done()}); }
PLUGIN godot_variant superslm_text(const godot_array* array) {
  return of(stage->text(static_cast<int>(Arguments(array).integer(0))));
}
PLUGIN godot_variant superslm_save_and_restore(const godot_array*) { return of(stage->save_and_restore()); }
PLUGIN godot_variant superslm_transcript(const godot_array*) { return of(stage->transcript()); }
PLUGIN godot_variant superslm_close(const godot_array*) { return of(stage->close()); }
