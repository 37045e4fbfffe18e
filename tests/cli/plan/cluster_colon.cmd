plan --model glm-4.5 --cluster h200:
