# Included by scripts that set SOURCE. COMMIT is its commit, with a "+" if tracked files have changes, or "no git".
execute_process(COMMAND git rev-parse --short=12 HEAD WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE COMMIT
                OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
execute_process(COMMAND git status --porcelain --untracked-files=no WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE CHANGES
                ERROR_QUIET)
if(NOT COMMIT)
    set(COMMIT "no git")
elseif(CHANGES)
    string(APPEND COMMIT "+")
endif()
