/* Stands in for a header of Open MPI that its packages leave out; op.h needs two names of it. */
#ifndef UCX_MP_PML_GLUE_OMPI_FINT_2_INT_H
#define UCX_MP_PML_GLUE_OMPI_FINT_2_INT_H

#if OMPI_SIZEOF_FORTRAN_INTEGER != SIZEOF_INT
#error "Fortran's INTEGER is no int here"
#endif
#define OMPI_INT_2_FINT(a) (a)
#define OMPI_FINT_2_INT(a) (a)

#endif
