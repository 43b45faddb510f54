// troupe._usual_step, a module for Python: steps of an environment in which nothing happens but observations and
// rewards.
//
// The host of Python environments (python/troupe/env_host.py) reads actions from the shared memory, steps and writes
// what came back, in Python, which knows all that an environment may do. In nearly every step all agents are in play,
// all act, nobody ends, and rows have the declared form: that step is made here, a few times faster. Whatever else
// comes back is left to the adapter, as if this were not here: take() answers False, and what it has written is written
// again. So nothing is decided here, and no error is made here; what the environment's own code raises is passed on.
//
// For the stable ABI of CPython 3.11: one file for every later version. numpy is not linked: its arrays are buffers.

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <array>
#include <cfenv>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace {

/// An owned reference.
class Ref {
 public:
  Ref() = default;
  explicit Ref(PyObject* owned) : object_(owned) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  Ref(const Ref&) = delete;
  Ref& operator=(const Ref&) = delete;
  ~Ref() { Py_XDECREF(object_); }

  static Ref To(PyObject* borrowed) { return Ref(Py_NewRef(borrowed)); }
  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

/// What an environment takes and returns: its adapter's `usual_form`.
enum class Form { kParallel, kRllib, kList, kTuple, kOne };
constexpr std::array<std::pair<const char*, Form>, 5> kForms = {{{"parallel", Form::kParallel},
                                                                 {"rllib", Form::kRllib},
                                                                 {"list", Form::kList},
                                                                 {"tuple", Form::kTuple},
                                                                 {"one", Form::kOne}}};

/// Names that are looked up in every step; live as long as the process.
struct Names {
  PyObject* step = PyUnicode_InternFromString("step");
  PyObject* agents = PyUnicode_InternFromString("agents");
  PyObject* all = PyUnicode_InternFromString("__all__");
  /// Dicts by agent whose items are what PyDict_Next gives.
  Ref collections{PyImport_ImportModule("collections")};
  Ref defaultdict{Attribute("defaultdict")}, ordered_dict{Attribute("OrderedDict")};
  /// Keys of infos that mean something (env_adapters/core.py).
  std::array<PyObject*, 3> special = {PyUnicode_InternFromString("action_mask"),
                                      PyUnicode_InternFromString("agent_mask"), PyUnicode_InternFromString("state")};

 private:
  PyObject* Attribute(const char* name) const {
    return collections ? PyObject_GetAttrString(collections.get(), name) : nullptr;
  }
};
const Names& names() {
  static const Names* const kNames = new Names;
  return *kNames;
}

constexpr uint8_t kObserved = 1;                // AGENT_OBSERVED of _shm_host.py
constexpr int kStatusWord = 1, kFlagsWord = 2;  // BLOCK_STATUS, BLOCK_FLAGS
constexpr int kVersion = 1;                     // VERSION of usual_step.py: how the two speak

struct Agent {
  Ref key;
  Ref read_action;  // called for an action that is not a word of `words`
  char* row = nullptr;
  bool uint8 = false;
  std::vector<Py_ssize_t> shape;
  size_t size = 1;  // elements
};

/// One environment and its block. Holds the block's memory.
struct UsualStep {
  ~UsualStep() {
    if (memory.obj != nullptr) PyBuffer_Release(&memory);
  }

  Form form = Form::kOne;
  Ref env, array_type, numpy_false, float64_type, float32_type;
  std::vector<Agent> agents;
  Py_buffer memory{};
  uint32_t* header = nullptr;
  const uint8_t* acts = nullptr;
  const int32_t* words = nullptr;  // null: read_action
  uint8_t* flags = nullptr;
  float* rewards = nullptr;

  Ref returned;    // by the last step
  long steps = 0;  // since leave()
};

struct Object {
  PyObject base;  // what PyObject_HEAD is
  UsualStep* state;
};
UsualStep& StateOf(PyObject* self) { return *reinterpret_cast<Object*>(self)->state; }

// --- what came back ------------------------------------------------------------------------------------------------

/// Copies an array of the declared shape into its row; real numbers of either width, as the Python code does.
bool TakeObservation(const UsualStep& state, const Agent& agent, PyObject* value) {
  if (reinterpret_cast<PyObject*>(Py_TYPE(value)) != state.array_type.get()) return false;
  Py_buffer view;
  if (PyObject_GetBuffer(value, &view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) != 0) {
    PyErr_Clear();
    return false;
  }
  bool fits = static_cast<size_t>(view.ndim) == agent.shape.size() && view.format[0] != '\0' && view.format[1] == '\0';
  for (size_t d = 0; fits && d < agent.shape.size(); ++d) fits = view.shape[d] == agent.shape[d];
  const char type = fits ? view.format[0] : '\0';
  if (type == (agent.uint8 ? 'B' : 'f')) {
    std::memcpy(agent.row, view.buf, agent.size * (agent.uint8 ? 1 : sizeof(float)));
  } else if (type == 'd' && !agent.uint8) {
    const double* const from = static_cast<const double*>(view.buf);
    float* const to = reinterpret_cast<float*>(agent.row);
    std::feclearexcept(FE_ALL_EXCEPT);
    for (size_t i = 0; i < agent.size; ++i) to[i] = static_cast<float>(from[i]);
    // What numpy would warn of, or raise, as the environment has told it.
    fits = std::fetestexcept(FE_OVERFLOW | FE_UNDERFLOW | FE_INVALID) == 0;
  } else {
    fits = false;
  }
  PyBuffer_Release(&view);
  return fits;
}

/// None is none. Only types whose conversion runs no code of the environment's.
bool TakeReward(const UsualStep& state, PyObject* value, float& out) {
  PyObject* const type = reinterpret_cast<PyObject*>(Py_TYPE(value));
  double number = 0;
  if (PyFloat_CheckExact(value) || PyBool_Check(value) || type == state.float64_type.get() ||
      type == state.float32_type.get()) {
    number = PyFloat_AsDouble(value);
  } else if (PyLong_CheckExact(value)) {
    number = PyLong_AsDouble(value);
  } else if (value != Py_None) {
    return false;
  }
  if (number == -1.0 && PyErr_Occurred() != nullptr) {
    PyErr_Clear();  // an int that is too large
    return false;
  }
  if (!(std::fabs(number) <= static_cast<double>(FLT_MAX))) return false;
  out = static_cast<float>(number + 0.0);  // a zero is positive
  return true;
}

/// Whether an info holds nothing that its adapter would read.
bool SaysNothing(PyObject* info) {
  if (!PyDict_CheckExact(info)) return info == Py_None;
  if (PyDict_Size(info) == 0) return true;
  const Ref held = Ref::To(info);  // keys may compare as they like
  for (PyObject* const key : names().special) {
    if (PyDict_Contains(info, key) != 0) return false;
  }
  return true;
}

bool IsDict(PyObject* object) {
  PyObject* const type = reinterpret_cast<PyObject*>(Py_TYPE(object));
  return PyDict_CheckExact(object) || type == names().defaultdict.get() || type == names().ordered_dict.get();
}

bool IsFalse(const UsualStep& state, PyObject* flag) { return flag == Py_False || flag == state.numpy_false.get(); }

bool AllFalse(const UsualStep& state, PyObject* flags) {
  Py_ssize_t at = 0;
  PyObject* flag = nullptr;
  while (PyDict_Next(flags, &at, nullptr, &flag) != 0) {
    if (!IsFalse(state, flag)) return false;
  }
  return true;
}

/// Whether it is the agent's; equal text is built anew by some environments in every step.
bool IsKeyOf(const Agent& agent, PyObject* key) {
  if (key == agent.key.get()) return true;
  return PyUnicode_CheckExact(key) && PyUnicode_CheckExact(agent.key.get()) &&
         PyUnicode_Compare(key, agent.key.get()) == 0;
}

/// `take` of every agent's value, in their order and nothing else.
template <typename Take>
bool ForEachAgent(const UsualStep& state, PyObject* dict, const Take& take) {
  if (PyDict_Size(dict) != static_cast<Py_ssize_t>(state.agents.size())) return false;
  Py_ssize_t at = 0;
  PyObject *key = nullptr, *value = nullptr;
  for (size_t i = 0; i < state.agents.size(); ++i) {
    if (PyDict_Next(dict, &at, &key, &value) == 0 || !IsKeyOf(state.agents[i], key) || !take(i, value)) return false;
  }
  return true;
}

using Parts = std::array<PyObject*, 5>;  // observations, rewards, terminated, truncated, infos

bool TakeDicts(UsualStep& state, const Parts& parts) {
  for (PyObject* const part : parts) {
    if (!IsDict(part)) return false;
  }
  const auto& [observations, rewards, terminated, truncated, infos] = parts;
  const auto observation = [&](size_t i, PyObject* value) { return TakeObservation(state, state.agents[i], value); };
  const auto reward = [&](size_t i, PyObject* value) { return TakeReward(state, value, state.rewards[i]); };
  const auto info = [](size_t, PyObject* value) { return PyDict_CheckExact(value) && SaysNothing(value); };
  if (!ForEachAgent(state, observations, observation) || !ForEachAgent(state, rewards, reward)) return false;
  if (!AllFalse(state, terminated) || !AllFalse(state, truncated)) return false;
  if (PyDict_Size(infos) != 0 && !ForEachAgent(state, infos, info)) return false;
  if (state.form == Form::kRllib) return PyDict_GetItemWithError(terminated, names().all) != nullptr;
  const Ref agents(PyObject_GetAttr(state.env.get(), names().agents));
  return agents && PyObject_IsTrue(agents.get()) == 1;
}

bool TakeOne(UsualStep& state, const Parts& parts) {
  const auto& [observation, reward, terminated, truncated, info] = parts;
  return IsFalse(state, terminated) && IsFalse(state, truncated) && SaysNothing(info) &&
         TakeObservation(state, state.agents[0], observation) && TakeReward(state, reward, state.rewards[0]);
}

Py_ssize_t CountOf(PyObject* sequence) {
  if (PyTuple_CheckExact(sequence)) return PyTuple_Size(sequence);
  return PyList_CheckExact(sequence) ? PyList_Size(sequence) : -1;
}

PyObject* ItemOf(PyObject* sequence, size_t i) {
  const auto index = static_cast<Py_ssize_t>(i);
  return PyTuple_CheckExact(sequence) ? PyTuple_GetItem(sequence, index) : PyList_GetItem(sequence, index);
}

/// Flags that are lists are for the adapter.
bool TakeLists(UsualStep& state, const Parts& parts) {
  const auto& [observations, rewards, terminated, truncated, info] = parts;
  const auto count = static_cast<Py_ssize_t>(state.agents.size());
  if (CountOf(observations) != count || CountOf(rewards) != count) return false;
  if (!IsFalse(state, terminated) || !IsFalse(state, truncated) || !SaysNothing(info)) return false;
  for (size_t i = 0; i < state.agents.size(); ++i) {
    if (!TakeObservation(state, state.agents[i], ItemOf(observations, i))) return false;
    if (!TakeReward(state, ItemOf(rewards, i), state.rewards[i])) return false;
  }
  return true;
}

/// take() -> bool: writes what the last step returned into the block, if it is as usual. Raises what the environment's
/// code raises that is asked (its property `agents`).
PyObject* Take(PyObject* self, PyObject*) {
  UsualStep& state = StateOf(self);
  PyObject* const returned = state.returned.get();
  if (returned == nullptr || !PyTuple_CheckExact(returned) || PyTuple_Size(returned) != 5) Py_RETURN_FALSE;
  Parts parts;
  for (size_t i = 0; i < parts.size(); ++i) parts[i] = PyTuple_GetItem(returned, static_cast<Py_ssize_t>(i));
  bool usual = false;
  switch (state.form) {
    case Form::kParallel:
    case Form::kRllib:
      usual = TakeDicts(state, parts);
      break;
    case Form::kList:
    case Form::kTuple:
      usual = TakeLists(state, parts);
      break;
    case Form::kOne:
      usual = TakeOne(state, parts);
      break;
  }
  if (PyErr_Occurred() != nullptr) return nullptr;
  if (!usual) Py_RETURN_FALSE;
  std::memset(state.flags, kObserved, state.agents.size());
  state.header[kStatusWord] = state.header[kFlagsWord] = 0;
  Py_RETURN_TRUE;
}

// --- actions ---------------------------------------------------------------------------------------------------------

/// A new reference; null with Python's error.
Ref ActionOf(const UsualStep& state, size_t i) {
  if (state.words != nullptr) return Ref(PyLong_FromLong(state.words[i]));
  return Ref(PyObject_CallNoArgs(state.agents[i].read_action.get()));
}

/// The actions in the environment's own form; null with Python's error.
Ref Actions(const UsualStep& state) {
  if (state.form == Form::kOne) return ActionOf(state, 0);
  const auto count = static_cast<Py_ssize_t>(state.agents.size());
  const bool dict = state.form == Form::kParallel || state.form == Form::kRllib;
  Ref actions(dict ? PyDict_New() : state.form == Form::kList ? PyList_New(count) : PyTuple_New(count));
  if (!actions) return Ref();
  for (size_t i = 0; i < state.agents.size(); ++i) {
    Ref action = ActionOf(state, i);
    if (!action) return Ref();
    const auto index = static_cast<Py_ssize_t>(i);
    int failed = 0;
    if (dict) {
      failed = PyDict_SetItem(actions.get(), state.agents[i].key.get(), action.get());
    } else if (state.form == Form::kList) {
      failed = PyList_SetItem(actions.get(), index, action.release());
    } else {
      failed = PyTuple_SetItem(actions.get(), index, action.release());
    }
    if (failed != 0) return Ref();
  }
  return actions;
}

/// step() -> bool: the environment's step with the block's actions. False, and nothing is done, where not everybody
/// acts. Raises what the environment raises.
PyObject* Step(PyObject* self, PyObject*) {
  UsualStep& state = StateOf(self);
  state.returned = Ref();
  for (size_t i = 0; i < state.agents.size(); ++i) {
    if (state.acts[i] == 0) Py_RETURN_FALSE;
  }
  const Ref actions = Actions(state);
  if (!actions) return nullptr;
  state.returned = Ref(PyObject_CallMethodObjArgs(state.env.get(), names().step, actions.get(), nullptr));
  if (!state.returned) return nullptr;
  ++state.steps;
  Py_RETURN_TRUE;
}

/// leave() -> (returned, steps): what the last step returned (None: nothing), and the steps since the last leave().
PyObject* Leave(PyObject* self, PyObject*) {
  UsualStep& state = StateOf(self);
  const Ref returned = state.returned ? std::move(state.returned) : Ref::To(Py_None);
  return Py_BuildValue("Ol", returned.get(), std::exchange(state.steps, 0));
}

// --- making it -------------------------------------------------------------------------------------------------------

bool SetForm(UsualStep& state, PyObject* name) {
  for (const auto& [text, form] : kForms) {
    if (PyUnicode_CompareWithASCIIString(name, text) == 0) {
      state.form = form;
      return true;
    }
  }
  PyErr_Format(PyExc_ValueError, "form is %R, expected parallel, rllib, list, tuple or one", name);
  return false;
}

/// The place of so many bytes at an offset of the block.
char* Place(const UsualStep& state, Py_ssize_t offset, size_t bytes) {
  if (offset < 0 || static_cast<size_t>(offset) + bytes > static_cast<size_t>(state.memory.len)) {
    PyErr_Format(PyExc_ValueError, "%zu bytes at %zd are not within the block's %zd", bytes, offset, state.memory.len);
    return nullptr;
  }
  return static_cast<char*>(state.memory.buf) + offset;
}

/// (key, row's offset, uint8, shape, reader of its actions)
bool AddAgent(UsualStep& state, PyObject* description) {
  PyObject *key = nullptr, *shape = nullptr, *read_action = nullptr;
  Py_ssize_t offset = 0;
  int uint8 = 0;
  if (PyArg_ParseTuple(description, "OnpO!O", &key, &offset, &uint8, &PyTuple_Type, &shape, &read_action) == 0) {
    return false;
  }
  Agent& agent = state.agents.emplace_back();
  agent.key = Ref::To(key);
  agent.read_action = Ref::To(read_action);
  agent.uint8 = uint8 != 0;
  for (Py_ssize_t d = 0; d < PyTuple_Size(shape); ++d) {
    const Py_ssize_t length = PyLong_AsSsize_t(PyTuple_GetItem(shape, d));
    if (length < 0) {
      if (PyErr_Occurred() == nullptr) PyErr_Format(PyExc_ValueError, "a shape has the length %zd", length);
      return false;
    }
    agent.shape.push_back(length);
    agent.size *= static_cast<size_t>(length);
  }
  agent.row = Place(state, offset, agent.size * (agent.uint8 ? 1 : sizeof(float)));
  return agent.row != nullptr;
}

/// UsualStep(form, env, (ndarray, False_, float64, float32) of numpy, memory, agents, acts, words, flags, rewards): the
/// last four are offsets; words < 0: the agents' readers give the actions.
PyObject* Make(PyTypeObject* type, PyObject* args) {
  PyObject *form = nullptr, *env = nullptr, *array_type = nullptr, *numpy_false = nullptr, *float64_type = nullptr,
           *float32_type = nullptr, *memory = nullptr, *agents = nullptr;
  Py_ssize_t acts = 0, words = 0, flags = 0, rewards = 0;
  if (PyArg_ParseTuple(args, "UO(OOOO)OO!nnnn", &form, &env, &array_type, &numpy_false, &float64_type, &float32_type,
                       &memory, &PyTuple_Type, &agents, &acts, &words, &flags, &rewards) == 0) {
    return nullptr;
  }
  auto state = std::make_unique<UsualStep>();
  if (!SetForm(*state, form) || PyObject_GetBuffer(memory, &state->memory, PyBUF_WRITABLE) != 0) return nullptr;
  state->env = Ref::To(env);
  state->array_type = Ref::To(array_type);
  state->numpy_false = Ref::To(numpy_false);
  state->float64_type = Ref::To(float64_type);
  state->float32_type = Ref::To(float32_type);
  for (Py_ssize_t i = 0; i < PyTuple_Size(agents); ++i) {
    if (!AddAgent(*state, PyTuple_GetItem(agents, i))) return nullptr;
  }
  const size_t count = state->agents.size();
  state->header = reinterpret_cast<uint32_t*>(Place(*state, 0, 4 * sizeof(uint32_t)));
  state->acts = reinterpret_cast<uint8_t*>(Place(*state, acts, count));
  state->flags = reinterpret_cast<uint8_t*>(Place(*state, flags, count));
  state->rewards = reinterpret_cast<float*>(Place(*state, rewards, count * sizeof(float)));
  if (words >= 0) state->words = reinterpret_cast<int32_t*>(Place(*state, words, count * sizeof(int32_t)));
  if (PyErr_Occurred() != nullptr) return nullptr;
  const auto allocate = reinterpret_cast<allocfunc>(PyType_GetSlot(type, Py_tp_alloc));
  PyObject* const self = allocate(type, 0);
  if (self != nullptr) reinterpret_cast<Object*>(self)->state = state.release();
  return self;
}

PyObject* New(PyTypeObject* type, PyObject* args, PyObject*) {
  try {
    return Make(type, args);
  } catch (const std::bad_alloc&) {
    return PyErr_NoMemory();
  }
}

void Delete(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  delete reinterpret_cast<Object*>(self)->state;
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

PyMethodDef kMethods[] = {
    {"step", Step, METH_NOARGS, "Steps the environment with the block's actions; False where not everybody acts."},
    {"take", Take, METH_NOARGS, "Writes what the step returned into the block; False where it is not as usual."},
    {"leave", Leave, METH_NOARGS, "What the last step returned, and how many steps there were."},
    {nullptr, nullptr, 0, nullptr}};
PyType_Slot kSlots[] = {{Py_tp_new, reinterpret_cast<void*>(New)},
                        {Py_tp_dealloc, reinterpret_cast<void*>(Delete)},
                        {Py_tp_methods, kMethods},
                        {0, nullptr}};
PyType_Spec kSpec = {"troupe._usual_step.UsualStep", sizeof(Object), 0, Py_TPFLAGS_DEFAULT, kSlots};
PyModuleDef kModule = {PyModuleDef_HEAD_INIT, "_usual_step", nullptr, -1, nullptr, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__usual_step() {
  Ref module(PyModule_Create(&kModule));
  Ref type(PyType_FromSpec(&kSpec));
  if (!module || !type || !names().ordered_dict || PyModule_AddObjectRef(module.get(), "UsualStep", type.get()) != 0 ||
      PyModule_AddIntConstant(module.get(), "VERSION", kVersion) != 0) {
    return nullptr;
  }
  return module.release();
}
