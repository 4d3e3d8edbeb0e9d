# Tasksets that are files, in an image of their own: what an author does without a package index.
FROM environment-verifiers:dev
COPY *.py /opt/tasksets/
ENV RL_TASKSETS=/opt/tasksets
