# SPDX-License-Identifier: MIT
# Completion of weir for bash.

# What the words so far say of options: the words for `weir ls` in $where, those for `weir check` in
# $check, the configuration in $file. An option and its value may be one word with =, which bash
# takes apart.
_weir_where()
{
    local i option value

    where=() check=() file=${WEIR_CONFIG-} defined=
    for ((i = 2; i < COMP_CWORD; i++)); do
        option=${COMP_WORDS[i]} value=${COMP_WORDS[i + 1]}
        [[ $option == -- ]] && break
        [[ $option == --* && $value == = ]] && value=${COMP_WORDS[i + 2]}
        [[ ${COMP_WORDS[1]} == rm && $option == -f ]] && continue
        case $option in
        --process-dir) where+=("$option" "$value") ;;
        -f | --file) where+=("$option" "$value") file=$value ;;
        -d | --plugin-dir) check+=("$option" "$value") ;;
        -l | --limit) defined=1 ;;
        esac
    done
}

# The sets that `weir exec` and `weir hold` can open: those of the configuration, or else, as for all other commands,
# those that exist in the directory that the words so far name.
_weir_sets()
{
    local where check file defined

    _weir_where
    if [[ ${COMP_WORDS[1]} == @(exec|hold) && -n $file && -z $defined ]]; then
        "${COMP_WORDS[0]}" check --names "${check[@]}" -- "$file" 2>/dev/null
    else
        "${COMP_WORDS[0]}" ls --names "${where[@]}" 2>/dev/null
    fi
}

# Whole lines, so that names may have blanks in them.
_weir_complete_sets()
{
    local IFS=$'\n' name

    while read -r name; do
        [[ $name == "$2"* ]] && COMPREPLY+=("$(printf '%q' "$name")")
    done < <(_weir_sets)
}

# The words from this one on are a command line of their own.
_weir_command()
{
    if declare -F _command_offset >/dev/null; then
        _command_offset "$1"
    elif ((COMP_CWORD == $1)); then
        mapfile -t COMPREPLY < <(compgen -c -- "$2")
    else
        compopt -o default
    fi
}

# Where the command of `weir exec` begins, or nothing if it is not reached yet.
_weir_exec_command_at()
{
    local i

    for ((i = 2; i <= COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
        --)
            echo $((i + 1))
            return
            ;;
        -s | -f | -l | -a | -S | -t | -w | -E | -d) i=$((i + 1)) ;;
        --set | --name | --file | --limit | --amount | --subject | --class | --timeout | \
            --max-wait | --exit-code | --process-dir | --plugin-dir)
            [[ ${COMP_WORDS[i + 1]} == = ]] && i=$((i + 1))
            i=$((i + 1))
            ;;
        -*) ;;
        *)
            echo $i
            return
            ;;
        esac
    done
}

_weir_options()
{
    case $1 in
    exec | hold)
        [[ $1 == hold ]] && echo --fd
        echo --set --name --file --limit --amount --subject --class --timeout --max-wait \
            --exit-code --retry-after --verbose --process-dir --plugin-dir --help
        ;;
    stat) echo --json --openmetrics --prometheus --sort --match --no-idle --file --process-dir --plugin-dir --help ;;
    top) echo --interval --sort --match --no-idle --file --process-dir --plugin-dir --help ;;
    why) echo --json --file --process-dir --plugin-dir --help ;;
    serve) echo --metrics --file --process-dir --plugin-dir --help ;;
    ls) echo --json --names --file --process-dir --help ;;
    apply) echo --dry-run --process-dir --plugin-dir --help ;;
    set) echo --dry-run --file --process-dir --plugin-dir --help ;;
    rm) echo --force --file --process-dir --help ;;
    check) echo --json --names --strict --connect --plugin-dir --help ;;
    simulate)
        echo --file --compare --set --format --time --ends --reorder --strict --load --seed --amount --used --hold \
            --subject --route --mode --timeout --max-wait --suggest --target --json --svg --png --decisions \
            --plugin-dir --help
        ;;
    plugin)
        case ${COMP_WORDS[2]} in
        check) echo --json --seed --time --only --verbose --help ;;
        new) echo --language --directory --help ;;
        *) echo --help ;;
        esac
        ;;
    plugins) echo --json --config --plugin-dir --timeout --help ;;
    *) echo --help --version ;;
    esac
}

_weir()
{
    local current=$2 previous=$3 part=${COMP_WORDS[1]} at

    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        mapfile -t COMPREPLY < <(compgen -W \
            "exec hold stat top why serve ls rm apply set check simulate plugin plugins --help --version" -- "$current")
        return
    fi
    if [[ $part == exec ]]; then
        at=$(_weir_exec_command_at)
        if [[ -n $at ]] && ((COMP_CWORD >= at)); then
            _weir_command "$at" "$current"
            return
        fi
    fi
    case $part:$previous in
    exec:-s | exec:--set | exec:--name | hold:-s | hold:--set | hold:--name)
        _weir_complete_sets "$part" "$current"
        return
        ;;
    *:--process-dir | *:--plugin-dir | *:--directory | *:-d)
        compopt -o nospace -o dirnames
        mapfile -t COMPREPLY < <(compgen -d -S / -- "$current")
        return
        ;;
    stat:-s | top:-s | *:--sort)
        mapfile -t COMPREPLY < <(compgen -W "name waiting" -- "$current")
        return
        ;;
    plugin:-l | plugin:--language)
        mapfile -t COMPREPLY < <(compgen -W "c c++ rust" -- "$current")
        return
        ;;
    stat:-m | top:-m | *:--match)
        return
        ;;
    simulate:-s | simulate:--set | simulate:-[TLaHStw] | simulate:--time | simulate:--reorder | simulate:--load | \
        simulate:--seed | simulate:--used | simulate:--hold | simulate:--route | simulate:--suggest | simulate:--target)
        return
        ;;
    simulate:-F | simulate:--format)
        mapfile -t COMPREPLY < <(compgen -W "common combined json csv" -- "$current")
        return
        ;;
    simulate:-m | simulate:--mode)
        mapfile -t COMPREPLY < <(compgen -W "wait try take" -- "$current")
        return
        ;;
    simulate:--compare | simulate:--svg | simulate:--png | simulate:--decisions)
        compopt -o default
        return
        ;;
    rm:-f) ;;
    *:-f | *:--file | *:-c | *:--config)
        compopt -o default
        return
        ;;
    exec:-[laStwE] | hold:-[laStwE] | *:--fd | *:--exit-code | *:--limit | *:--amount | *:--subject | *:--class | *:--timeout | *:--max-wait | *:--interval | top:-i | plugin:-[sto] | plugin:--seed | plugin:--time | plugin:--only)
        return
        ;;
    esac
    if [[ $part == plugin ]] && ((COMP_CWORD == 2)) && [[ $current != -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "check new" -- "$current")
        return
    fi
    if [[ $part == plugin && ${COMP_WORDS[2]} == new && $current != -* ]]; then
        ((COMP_CWORD == 3)) && mapfile -t COMPREPLY < <(compgen -W "algorithm balancer" -- "$current")
        return
    fi
    if [[ $current == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_weir_options "$part")" -- "$current")
        return
    fi
    case $part in
    stat | top | why | rm | set) _weir_complete_sets "$part" "$current" ;;
    apply | check | plugin | plugins | simulate) compopt -o default ;;
    esac
}

complete -F _weir weir
