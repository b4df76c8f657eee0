# coda_require_op_tests(FOLDERS TESTS): each of the FOLDERS, a list in quotes, must have a file among TESTS.
# A forgotten cpu.cpp or case.cpp is a link error; a forgotten test would go unnoticed.
function(coda_require_op_tests folders tests)
    foreach(folder IN LISTS folders)
        set(found ${tests})
        list(FILTER found INCLUDE REGEX "^${folder}/[^/]+$")
        if(NOT found)
            message(FATAL_ERROR "${folder} has no test: write test.cpp, the op's formula, next to its cpu.cpp")
        endif()
    endforeach()
endfunction()
