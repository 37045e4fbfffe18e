model glm-4.6 --diff GLM-4.5
