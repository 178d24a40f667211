# Sourced after tap.sh: commands of AWS with a memory.  They make, find and take away; one call at a
# time changes what is there.
#
#   aws COMMAND...     run it with them on its PATH, as run does
#   $STATE             a folder with a file for each thing that is there; $STATE.log has every call
export STATE=$WORK/state
mkdir -p aws-bin state
cat >aws-bin/aws <<'S'
#!/bin/bash
echo "aws $*" >>"$STATE.log"
get() { [ -e "$STATE/$1" ] && cat "$STATE/$1" || echo None; }
case "$1 $2" in
"s3 cp" | "s3 ls") ;;
"ssm get-parameter") echo ami-0123456789abcdef0 ;;
"cloudformation deploy") touch "$STATE/stack" ;;
"cloudformation describe-stacks") [ -e "$STATE/stack" ] || { echo "Stack with id x does not exist" >&2; exit 254; }; echo '{"Stacks": []}' ;;
"cloudformation describe-stack-resources") echo bucket-1 ;;
"cloudformation wait") ;;
"cloudformation delete-stack") rm "$STATE/stack" ;;
"sagemaker create-cluster") touch "$STATE/hyperpod" ;;
"sagemaker describe-cluster") [ ! -e "$STATE/hyperpod" ] || { echo InService; exit; }; echo ResourceNotFound >&2; exit 254 ;;
"sagemaker delete-cluster") rm "$STATE/hyperpod" ;;
"ec2 describe-placement-groups") [ -e "$STATE/group" ] ;;
"ec2 create-placement-group") touch "$STATE/group" ;;
"ec2 delete-placement-group") [ ! -e "$STATE/template" ] && rm "$STATE/group" ;;
"ec2 describe-launch-templates") [ -e "$STATE/template" ] ;;
"ec2 create-launch-template") [ -e "$STATE/group" ] && touch "$STATE/template" ;;
"ec2 create-launch-template-version") [ -e "$STATE/template" ] && printf '%s' "${@: -1}" >"$STATE.data" ;;
"ec2 delete-launch-template") [ ! -e "$STATE/environment" ] && rm "$STATE/template" ;;
"batch create-compute-environment") [ -s "$STATE.data" ] && echo CREATING >"$STATE/environment" ;;
"batch describe-compute-environments") get environment; sed -i s/CREATING/VALID/ "$STATE/environment" 2>/dev/null ;;
"batch update-compute-environment") [ ! -e "$STATE/queue" ] && touch "$STATE/environment-off" ;;
"batch delete-compute-environment") [ -e "$STATE/environment-off" ] && rm "$STATE/environment" "$STATE/environment-off" ;;
"batch register-job-definition") touch "$STATE/definition" ;;
"batch describe-job-definitions") [ ! -e "$STATE/definition" ] || echo arn:aws:batch:1 ;;
"batch deregister-job-definition") rm "$STATE/definition" ;;
"batch create-job-queue") [ "$(cat "$STATE/environment")" = VALID ] && echo CREATING >"$STATE/queue" ;;
"batch describe-job-queues") get queue; sed -i s/CREATING/VALID/ "$STATE/queue" 2>/dev/null ;;
"batch update-job-queue") touch "$STATE/queue-off" ;;
"batch delete-job-queue") [ -e "$STATE/queue-off" ] && rm "$STATE/queue" "$STATE/queue-off" ;;
"batch submit-job") printf '%s\n' "$@" >"$STATE.job"; echo 7f3c ;;
*) exit 9 ;;
esac
S
cat >aws-bin/pcluster <<'S'
#!/bin/bash
echo "pcluster $*" >>"$STATE.log"
case "$1" in
describe-cluster) [ -e "$STATE/pcluster" ] || { echo "it does not exist"; exit 1; } ;;
create-cluster) touch "$STATE/pcluster" ;;
delete-cluster) rm "$STATE/pcluster" ;;
*) exit 9 ;;
esac
S
printf '#!/bin/bash\n' >aws-bin/sleep
chmod +x aws-bin/*
aws() { run env PATH="$WORK/aws-bin:$PATH" "$@"; }
