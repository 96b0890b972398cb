/* A library whose objects are not those of the headers that pml/mp was made with: misfit NAME
 *
 * Makes the library's own description of NAME wrong before MPI_Init(), as another release's would be. pml/mp compares
 * it with the headers, Open MPI's and our stand-ins, when it is loaded, and says so in one line. "nothing" is left as
 * it is: it prints "misfit: started".
 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "ompi/communicator/communicator.h"
#include "ompi/datatype/ompi_datatype.h"
#include "ompi/group/group.h"
#include "ompi/message/message.h"
#include "ompi/proc/proc.h"
#include "ompi/request/request.h"
#include "opal/class/opal_free_list.h"
#include "opal/datatype/opal_convertor.h"

int main(int argc, char** argv) {
    const struct {
        const char* name;
        opal_class_t* class;
    } all[] = {{"ompi_request_t", &ompi_request_t_class},     {"ompi_communicator_t", &ompi_communicator_t_class},
               {"ompi_datatype_t", &ompi_datatype_t_class},   {"ompi_message_t", &ompi_message_t_class},
               {"opal_convertor_t", &opal_convertor_t_class}, {"opal_free_list_t", &opal_free_list_t_class},
               {"opal_mutex_t", &opal_mutex_t_class},         {"opal_recursive_mutex_t", &opal_recursive_mutex_t_class},
               {"ompi_group_t", &ompi_group_t_class},         {"ompi_proc_t", &ompi_proc_t_class}};
    const char* const name = argc > 1 ? argv[1] : "";
    int known = !strcmp(name, "nothing");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(name, all[i].name)) {
            all[i].class->cls_sizeof += 16; /* more than is needed: what is in the library goes on to work */
            known = 1;
        }
    if (!strcmp(name, "datatypes")) {
        ompi_mpi_double.dt.super.true_ub += 8;
        known = 1;
    }
    if (!known) {
        fprintf(stderr, "misfit: '%s' is not known\n", name);
        return 1;
    }
    MPI_Init(&argc, &argv);
    printf("misfit: started\n");
    MPI_Finalize();
    return 0;
}
