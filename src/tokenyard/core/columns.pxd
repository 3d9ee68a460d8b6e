# The numbers of columns.py, for Cython; what is not declared is any object.

import cython

cdef extern from "numpy/arrayobject.h":
    ctypedef long long whole "npy_int64"
    int PyArray_NDIM(object) noexcept nogil
    int PyArray_TYPE(object) noexcept nogil
    bint PyArray_IS_C_CONTIGUOUS(object) noexcept nogil
    bint PyArray_ISWRITEABLE(object) noexcept nogil
    Py_ssize_t PyArray_SIZE(object) noexcept nogil
    void* PyArray_DATA(object) noexcept nogil
    Py_ssize_t PyArray_DIM(object, int) noexcept nogil
    object PyArray_EMPTY(int, Py_ssize_t*, int, bint)
    Py_ssize_t* PyArray_DIMS(object) noexcept nogil
    int NPY_INT32
    int NPY_INT64
    int NPY_BOOL
    int WRITEABLE "NPY_ARRAY_WRITEABLE"
    int import_c "_import_array"() except -1

    ctypedef class numpy.ndarray [object PyArrayObject, check_size ignore]:
        """A NumPy array whose entries are whole numbers of 8 bytes, if it is plain.

        None is none: ``nonecheck`` does not reach what is asked of an extension type of others, so the questions here
        look for it, and where one is none C does not walk.
        """

        @property
        cdef inline whole* data(self) noexcept nogil:
            return <whole*>PyArray_DATA(self)

        @property
        cdef inline int* data32(self) noexcept nogil:
            return <int*>PyArray_DATA(self)

        @property
        cdef inline unsigned char* flags_data(self) noexcept nogil:
            return <unsigned char*>PyArray_DATA(self)

        @property
        cdef inline Py_ssize_t length(self) except? -1:
            """Entries of an array of one dimension, as ``len`` has it."""
            if self is None:
                raise AttributeError("None has no length")
            return PyArray_DIM(self, 0)

        @property
        cdef inline int ndim(self) noexcept nogil:
            return PyArray_NDIM(self)

        @property
        cdef inline bint is_plain(self) noexcept nogil:
            if self is None:
                return False
            return PyArray_NDIM(self) == 1 and PyArray_TYPE(self) == NPY_INT64 and PyArray_IS_C_CONTIGUOUS(self)

        @property
        cdef inline bint is_walked(self) noexcept nogil:
            return self is not None and PyArray_TYPE(self) == NPY_INT64 and PyArray_IS_C_CONTIGUOUS(self)

        @property
        cdef inline bint is_walked32(self) noexcept nogil:
            return self is not None and PyArray_TYPE(self) == NPY_INT32 and PyArray_IS_C_CONTIGUOUS(self)

        @property
        cdef inline bint is_flags(self) noexcept nogil:
            if self is None:
                return False
            return PyArray_NDIM(self) == 1 and PyArray_TYPE(self) == NPY_BOOL and PyArray_IS_C_CONTIGUOUS(self)

        @property
        cdef inline Py_ssize_t size(self) except? -1:
            """All entries, as NumPy has it."""
            if self is None:
                raise AttributeError("None has no size")
            return PyArray_SIZE(self)

        @property
        cdef inline bint may_change(self) except -1:
            if self is None:
                raise AttributeError("None has no flags")
            return PyArray_ISWRITEABLE(self)

        @property
        cdef inline object like(self):
            if self is None:
                raise AttributeError("None has no shape")
            return PyArray_EMPTY(1, PyArray_DIMS(self), NPY_INT64, 0)

    void clear_flags "PyArray_CLEARFLAGS" (ndarray, int) noexcept nogil

cdef inline ndarray int64_column(Py_ssize_t count):
    return PyArray_EMPTY(1, &count, NPY_INT64, 0)

cdef inline ndarray int32_column(Py_ssize_t count):
    return PyArray_EMPTY(1, &count, NPY_INT32, 0)

cdef inline ndarray flag_column(Py_ssize_t count):
    return PyArray_EMPTY(1, &count, NPY_BOOL, 0)

cdef ndarray _counting

cpdef bint is_plain(ndarray column) noexcept

cpdef bint is_walked(ndarray column) noexcept

cpdef bint is_walked32(ndarray column) noexcept

cpdef bint is_flags(ndarray column) noexcept

cpdef Py_ssize_t length_of(ndarray column) except? -1

cpdef bint may_change(ndarray column) except -1

cpdef bint are_alike(ndarray one, ndarray other) noexcept

cpdef bint have_entries(ndarray slots, ndarray column) noexcept

cpdef bint have_rows(ndarray slots, ndarray table) noexcept

@cython.locals(at='whole*', i=Py_ssize_t)
cpdef bint are_places(ndarray slots, Py_ssize_t count) noexcept

cpdef ndarray like(ndarray column)

cdef ndarray _new(Py_ssize_t count)

cdef ndarray _new32(Py_ssize_t count)

cdef ndarray _new_flags(Py_ssize_t count)

cpdef frozen(ndarray column)

cpdef counting(Py_ssize_t n)

cpdef bint any_true(mask) except -1

@cython.locals(
    i=Py_ssize_t, count=whole, context=whole, products=whole, squares=whole, of='whole*', behind='whole*'
)
cpdef tuple prompt_sums(ndarray new, ndarray computed)

@cython.locals(taken=ndarray, i=Py_ssize_t, of='whole*', off='whole*', into='whole*')
cpdef difference(ndarray one, ndarray other)

@cython.locals(taken=ndarray, i=Py_ssize_t, of='whole*', more='whole*', into='whole*')
cpdef summed(ndarray one, ndarray other)

@cython.locals(flags=ndarray, i=Py_ssize_t, found=Py_ssize_t, of='whole*', than='whole*', into='unsigned char*')
cpdef below(ndarray one, ndarray other)

@cython.locals(taken=ndarray, i=Py_ssize_t, of='whole*', into='whole*')
cpdef shifted(ndarray column, whole by)

@cython.locals(taken=ndarray, i=Py_ssize_t, of='whole*', into='whole*')
cpdef units(ndarray column, whole size)

@cython.locals(row=Py_ssize_t, summed=whole, entries='whole*')
cpdef reached(ndarray column, whole most, whole each=*)

@cython.locals(
    high=ndarray, low=ndarray, i=Py_ssize_t, count=Py_ssize_t, found=Py_ssize_t, entries='whole*', into='whole*',
    others='whole*',
)
cpdef parted(ndarray column)

@cython.locals(rows=ndarray, found=Py_ssize_t, i=Py_ssize_t, of='whole*', into='whole*')
cpdef rows_above(ndarray values, whole most)

@cython.locals(count=Py_ssize_t, most=Py_ssize_t, i=Py_ssize_t, k=Py_ssize_t, into='whole*', of='whole*')
cpdef count_places(ndarray counters, ndarray counts)

@cython.locals(entries='whole*', i=Py_ssize_t)
cpdef bint all_ones(ndarray column) except -1

@cython.locals(entries='whole*', others='whole*', i=Py_ssize_t)
cpdef bint same(ndarray one, ndarray other) except -1

@cython.locals(entries='whole*', result=whole, i=Py_ssize_t)
cpdef total(ndarray column)

@cython.locals(entries='whole*', i=Py_ssize_t)
cpdef bint are_within(ndarray numbers, whole least, whole most) except -1

@cython.locals(column=ndarray, numbers='int*', i=Py_ssize_t, count=Py_ssize_t)
cpdef int32s(list values)

@cython.locals(column=ndarray, numbers='int*', i=Py_ssize_t, number=int)
cpdef token_column(list ids)

@cython.locals(
    column=ndarray, longer=ndarray, numbers='int*', into='int*', count=Py_ssize_t, place=Py_ssize_t, i=Py_ssize_t
)
cpdef joined(list columns)

@cython.locals(column=ndarray, numbers='whole*', i=Py_ssize_t)
cpdef int64s(list values)

@cython.locals(taken=ndarray, entries='whole*', into='whole*', i=Py_ssize_t)
cpdef ndarray first_entries(ndarray column, Py_ssize_t count)

@cython.locals(longer=ndarray, entries='whole*', numbers='whole*', i=Py_ssize_t, count=Py_ssize_t)
cpdef extended(ndarray column, list values)
