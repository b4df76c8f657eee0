# Sets COMMIT for the script that sets SOURCE: its commit, with "-dirty" if tracked files have changes, or "no git".
execute_process(COMMAND git rev-parse --short=12 HEAD WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE COMMIT
                OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
execute_process(COMMAND git status --porcelain --untracked-files=no WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE CHANGES
                ERROR_QUIET)
if(NOT COMMIT)
    set(COMMIT "no git")
elseif(CHANGES)
    string(APPEND COMMIT "-dirty")
endif()
