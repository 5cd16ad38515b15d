/* noop.c - the cheapest method call that CPython knows: METH_O on a C type, gives None. The floor of any binding. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

static PyObject *allocate(PyObject *self, PyObject *size)
{
    (void)self;
    (void)size;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {{"allocate", allocate, METH_O, "Do nothing."}, {NULL, NULL, 0, NULL}};
static PyTypeObject noop_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "noop.Noop",
    .tp_basicsize = sizeof(PyObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_methods = methods,
    .tp_new = PyType_GenericNew,
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "noop", NULL, -1, NULL, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_noop(void)
{
    PyObject *made = PyModule_Create(&module);
    if (!made || PyModule_AddType(made, &noop_type)) {
        Py_XDECREF(made);
        return NULL;
    }
    return made;
}
