# bash completion for leasectl; source it or install it as /usr/share/bash-completion/completions/leasectl.

_leasectl_leases() {
  leasectl list --json 2>/dev/null | grep -o 'lease-[0-9a-f]\{32\}'
}

_leasectl() {
  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command='' i
  local commands='acquire list get exec cp release delete token'
  local common='--address --consumer --subject --token --tls-ca --tls-cert --tls-key --json --help --version'
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    case ${COMP_WORDS[i]} in
      --address | --consumer | --subject | --token | --tls-ca | --tls-cert | --tls-key) ((i++)) ;;
      -*) ;;
      *) command=${COMP_WORDS[i]}; break ;;
    esac
  done
  case $previous in
    --tls-ca | --tls-cert | --tls-key) mapfile -t COMPREPLY < <(compgen -f -- "$word"); return ;;
    --address | --consumer | --subject | --token | --pool | --ttl | --key | --cwd | --env | --timeout | --lifetime) return ;;
  esac
  case $command in
    '') mapfile -t COMPREPLY < <(compgen -W "$commands $common" -- "$word") ;;
    acquire) mapfile -t COMPREPLY < <(compgen -W '--pool --ttl --key' -- "$word") ;;
    list) mapfile -t COMPREPLY < <(compgen -W '--pool' -- "$word") ;;
    token) mapfile -t COMPREPLY < <(compgen -W '--lifetime' -- "$word") ;;
    exec) mapfile -t COMPREPLY < <(compgen -W "--cwd --env --timeout --interactive --no-stdin $(_leasectl_leases)" -- "$word") ;;
    get | release | delete) mapfile -t COMPREPLY < <(compgen -W "$(_leasectl_leases)" -- "$word") ;;
    cp) mapfile -t COMPREPLY < <(compgen -f -- "$word"; compgen -S : -W "$(_leasectl_leases)" -- "$word") ;;
  esac
}

complete -o nosort -F _leasectl leasectl
